"""The checks, one module a group of things; `table.CHECKS` lists them all."""
