"""What PyIceberg lacks: the one commit, the one deleter, manifests, branches, data files and row-level deletes."""
