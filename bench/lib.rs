//! Benchmarks; see `benches/`. Nothing here is tested by time.
