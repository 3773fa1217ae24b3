//! Random ids, fast and good enough to spread load: xorshift64* with a state per thread, seeded by the
//! standard library's own random keys.

use std::cell::Cell;
use std::hash::{BuildHasher as _, RandomState};

thread_local! {
    // Any state but 0 has the full period of 2^64 - 1.
    static STATE: Cell<u64> = Cell::new(RandomState::new().hash_one("worlds") | 1);
}

/// A number from 1 to `last`.
pub(super) fn up_to(last: i32) -> i32 {
    let mut state = STATE.get();
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    STATE.set(state);
    let high = state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32;
    // The high half of a product spreads evenly without a division (Lemire).
    1 + ((high * u64::from(last.unsigned_abs())) >> 32) as i32
}

#[cfg(test)]
mod tests {
    use super::up_to;

    #[test]
    fn every_number_of_the_range_comes_and_no_other() {
        let mut seen = [0_u32; 10];
        for _ in 0..10_000 {
            seen[up_to(10) as usize - 1] += 1;
        }
        assert!(seen.iter().all(|count| (800..1200).contains(count)), "{seen:?}");
    }
}
