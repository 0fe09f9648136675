"""Console pages about money and usage: buying, resizing, prices, invoices and usage."""
