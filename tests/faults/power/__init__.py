"""Power loss: every state in which a cut can leave the disks, rebuilt and recovered from."""
