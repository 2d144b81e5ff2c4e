"""From bare accelerator servers to a gradually released, measured LLM service."""
