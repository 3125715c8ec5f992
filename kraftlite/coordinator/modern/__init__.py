"""Consumer groups of the new protocol (KIP-848): the coordinator assigns, and members follow."""
