"""What belongs to one paper alone, a folder per paper."""
