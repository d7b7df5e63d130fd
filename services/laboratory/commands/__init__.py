"""hetspec record, hetspec bench: what the laboratory offers on the command line."""
