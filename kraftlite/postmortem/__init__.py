"""The metadata of a cluster, of kraftlite or of Apache Kafka, running or gone, read from the files of its metadata log alone.

| module | its part |
|---|---|
| `files` | finds the segments and snapshots of a metadata log in what a person names |
| `reading` | reads them batch by batch, and says in sentences what cannot be read |
| `replay` | the metadata at an offset |
| `tree`, `texts`, `glob` | the metadata as the directories and files of `kafka-metadata-shell` |
| `commands` | `ls`, `cat`, `find`, `tree` and the other commands of the shell |
| `changes` | who changed a path and when; what differs between two offsets |
| `events`, `causes` | the log as the events from which `obs/explain` makes stories |

Nothing is locked and nothing is written, so the files may belong to a node that runs. Everything but the metadata itself is
read in a stream.
"""
