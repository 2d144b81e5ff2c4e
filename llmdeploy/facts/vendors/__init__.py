"""Parsers of the vendors' tools, one module a vendor: text in, `VendorAnswer` out."""
