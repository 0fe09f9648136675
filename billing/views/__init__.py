"""Console pages about money and use: buying, resizing, prices, usage."""
