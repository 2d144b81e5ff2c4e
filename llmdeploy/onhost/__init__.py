"""What runs on a cluster's hosts: the standard library alone, sent there as one file."""
