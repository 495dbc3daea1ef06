"""What shoal costs: `make bench`. How to read the numbers is written in docs/reference/benchmarks.md."""
