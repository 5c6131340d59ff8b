"""The commands of the terminal: each parses, calls one function of the library, prints."""
