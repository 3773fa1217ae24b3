//! Random numbers that a seed repeats.

/// A generator (splitmix64): the same seed and stream give the same numbers.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// The generator `stream` of `seed`.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut dice = Self(seed ^ stream.wrapping_mul(0xd6e8_feb8_6659_fd93));
        dice.next();
        Self(dice.next() ^ stream)
    }

    /// Another generator, whose numbers have nothing to do with this one's. This one stays as it is.
    #[must_use]
    pub fn branch(&self) -> Self {
        Self::new(self.0, 77)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`; 0 below 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    /// True `share` times of a thousand.
    pub fn happens(&mut self, share: u64) -> bool {
        self.below(1000) < share
    }

    /// One of several.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}
