"""Kafka's metadata records on disk (KIP-631): one description of each as data, from which reader, writer and dump are made.

| module | its part |
|---|---|
| `layout` | the words of a description: kinds of fields, what a value means, versions by level of `metadata.version` |
| `table` | the description of every record of Kafka 4.3, at every version |
| `compiler`, `values` | readers and writers, compiled from it; what they call |
| `walk` | reads by the description alone: the JSON of `log dump`, and which field of a broken record is broken |

`metadata/codec` is the door: `MetadataSerde`.
"""
