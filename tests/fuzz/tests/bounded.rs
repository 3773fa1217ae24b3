//! Every target in the normal suite: the corpus, and what is made of it by chance, with the memory counted.
//!
//! `EXECUTIONS` says how many inputs each target gets (50,000 unless told otherwise), `SEED` which ones (printed).

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Instant;

use fuzz_targets::{Mutator, TARGETS, Target};

/// What a target may take at most for a small input, in bytes: its own limits for answers and parameters with room to
/// grow, far below what lengths can announce.
const MOST_MEMORY: usize = 4 << 20;
/// An input is looked at within this time, however slow the machine.
const MOST_SECONDS: f64 = 5.0;

/// Counts what each thread holds.
struct Counting;

thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

fn took(size: usize) {
    // Threads that end have nothing to count any more.
    let _ = HELD.try_with(|held| {
        held.set(held.get().wrapping_add(size));
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(held.get())));
    });
}

fn gave(size: usize) {
    let _ = HELD.try_with(|held| held.set(held.get().saturating_sub(size)));
}

#[expect(unsafe_code, reason = "an allocator cannot be written without")]
// SAFETY: everything is the system's allocator's; only sizes are counted beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        took(layout.size());
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        gave(layout.size());
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        gave(layout.size());
        took(size);
        // SAFETY: as the caller promised.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(usual)
}

/// The seeds of a target.
fn corpus(target: Target) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name);
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("a file").path())
        .collect();
    files.sort();
    files.iter().map(|file| std::fs::read(file).expect("it can be read")).collect()
}

/// Runs one input, and says what is wrong with how the target took it.
fn fault(target: Target, input: &[u8]) -> Option<String> {
    let before = HELD.get();
    PEAK.set(before);
    let began = Instant::now();
    let panicked = catch_unwind(AssertUnwindSafe(|| (target.run)(input))).is_err();
    let (peak, seconds) = (PEAK.get().saturating_sub(before), began.elapsed().as_secs_f64());
    if panicked {
        return Some("panicked".to_owned());
    }
    if peak > MOST_MEMORY {
        return Some(format!("took {peak} bytes of memory"));
    }
    (seconds > MOST_SECONDS).then(|| format!("took {seconds:.1} s"))
}

#[test]
fn no_bytes_make_a_parser_panic_hang_or_take_memory_without_bound() {
    let (executions, seed) = (number("EXECUTIONS", 50_000), number("SEED", 1));
    let mut faults = Vec::new();
    for target in TARGETS {
        let corpus = corpus(target);
        let far = corpus.iter().filter(|input| (target.run)(input) > 0).count();
        assert!(2 * far > corpus.len(), "{}: only {far} of {} seeds get anywhere", target.name, corpus.len());
        let mut mutator = Mutator::new(seed);
        let made = (0..executions).map(|_| mutator.input(&corpus));
        let began = Instant::now();
        for input in corpus.iter().cloned().chain(made) {
            if let Some(fault) = fault(target, &input) {
                faults.push(format!("{}: {fault}: {}", target.name, input.escape_ascii()));
                break;
            }
        }
        println!(
            "{}: {} seeds, {executions} inputs of seed {seed} in {:.1} s",
            target.name,
            corpus.len(),
            began.elapsed().as_secs_f64()
        );
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn what_the_oracles_look_for_is_found() {
    let panics = Target { name: "", run: |_| panic!("on purpose") };
    let grows = Target { name: "", run: |_| Vec::<u8>::with_capacity(MOST_MEMORY + 1).len() };
    let well = Target { name: "", run: |_| 0 };
    assert_eq!(fault(panics, b"").as_deref(), Some("panicked"));
    assert!(fault(grows, b"").is_some_and(|fault| fault.contains("memory")));
    assert_eq!(fault(well, b""), None);
}
