"""``python -m skb_pipeline.cli``."""

from skb_pipeline.cli import main

main()
