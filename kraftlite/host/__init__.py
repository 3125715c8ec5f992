"""The ports on the real machine: clock, disk, tasks, and the allocator."""
