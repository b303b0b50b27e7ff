"""The impure, thin layer: it runs slices and machines against a store."""
