"""The read side of the metadata log: records, images, the loader that folds the one into the other, and its publishers.

`records` has a frozen dataclass for each kind of record, and `codec` writes and reads them in Kafka's encoding, as the table in
`kafka_records` describes it (docs/adr/0015).
An `image.MetadataImage` is the immutable view of all metadata at one offset. Images share what did not change, in the
persistent maps of `pmap`. A `delta.MetadataDelta` is the difference between two of them.

`loader.MetadataLoader` is a `RaftListener`. One task of its own does the work, in the order in which raft delivered it:

| raft says | the loader does |
|---|---|
| `handle_commit(batches)` | replays the records into a delta, in slices; publishes at the end of the delivery |
| `handle_load_snapshot(snapshot)` | replaces the image; what the snapshot does not name is gone |
| `handle_leader_change(leader)` | tells the publishers who the active controller is |

    while True:
        event = next of the queue
        for batch in event.batches:
            batch_loader.load(batch)                # delta.replay(record) for each; a metadata transaction is held back
        delta, image = batch_loader.flush()         # image = delta.apply(provenance)
        for publisher in publishers:                # in the order of their installation, one after the other
            publisher.on_metadata_update(delta, image, manifest)

A publisher (`publisher.MetadataPublisher`) first gets the whole image, as a delta from nothing, once the loader has caught up
with the high watermark that it knew at its start. After that it gets every change. Publishers are called synchronously and must
not block. A publisher that raises is reported by its name; the others are still called.

| module | its part |
|---|---|
| `records`, `codec`, `kafka_records` | the records, their bytes, and the description of these from which the codec is compiled |
| `registrations`, `features` | a partition's, broker's and controller's registration; feature levels and what they allow |
| `image`, `delta`, `topics_delta`, `pmap` | the images and their differences; what a delta asks of one broker |
| `batch_loader`, `loader`, `publisher` | from batches to images to publishers |
| `snapshotter` | writes a metadata snapshot when the log has grown, from one image |

A reader takes one image and sees one moment. Nothing here decides, nothing writes records but snapshots, and nothing shows half
a metadata transaction. A record that cannot be replayed is a Fault: this node would differ from its log. The behaviours are ML
of docs/spec/metadata.md.
"""
