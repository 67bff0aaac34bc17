"""The two eras of the protocol, and the translation between them. No I/O."""
