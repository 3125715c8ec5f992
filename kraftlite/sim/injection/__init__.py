"""The doing of each kind of fault to a simulated cluster, by what it hits: nodes, links, disks, files, clocks.

Every module has a table `KINDS`; `catalog` joins them, and the injector carries them out.
"""
