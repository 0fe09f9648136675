"""The Produce call: request stages, delayed responses, recompression and transaction verification."""
