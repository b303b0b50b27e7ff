"""The control plane: runs slices and machines against a store, and all other input and output."""
