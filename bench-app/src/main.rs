//! The program `bench-app`; what it does is in the library beside it.

use std::process::ExitCode;

/// The allocator of the service; its peers in a fair comparison get the same. Huge pages are off: they doubled
/// the memory of a process of this size and gained nothing measurable.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    bench_app::run()
}
