"""Pure translation between the two eras of the protocol."""
