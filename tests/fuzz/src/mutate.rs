//! Inputs made of others by chance: the same seed gives the same inputs.

/// Numbers that lengths and counts are wrong with.
const WORDS: [u32; 8] = [0, 1, 3, 4, 0x7fff, 0xffff, 0x7fff_ffff, u32::MAX];

/// Changes inputs.
#[derive(Debug)]
pub struct Mutator(u64);

impl Mutator {
    /// One that is determined by `seed`.
    pub fn new(seed: u64) -> Self {
        // No state is all zeros.
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Below `limit`, which is at least 1.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % limit.max(1)
    }

    /// One of `corpus`, changed in a few places; some are spliced with another one.
    pub fn input(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        let mut input = self.choose(corpus);
        if self.below(4) == 0 {
            let other = self.choose(corpus);
            let (keep, from) = (self.below(input.len() + 1), self.below(other.len() + 1));
            input.truncate(keep);
            input.extend_from_slice(&other[from..]);
        }
        for _ in 0..=self.below(6) {
            self.change(&mut input);
        }
        input
    }

    fn choose(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        corpus.get(self.below(corpus.len())).cloned().unwrap_or_default()
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let at = self.below(input.len() + 1);
        let length = self.below(16).min(input.len() - at.min(input.len()));
        match self.below(7) {
            0 => input.truncate(at),
            1 => input.insert(at, self.below(256) as u8),
            2 => drop(input.drain(at..at + length)),
            3 => {
                // The same again behind itself.
                let piece = input[at..at + length].to_vec();
                input.splice(at..at, piece);
            }
            4 => {
                let word = WORDS[self.below(WORDS.len())];
                let bytes = if self.below(2) == 0 { word.to_be_bytes() } else { word.to_le_bytes() };
                let width = [1, 2, 3, 4][self.below(4)];
                for (byte, new) in input[at..].iter_mut().zip(&bytes[..width]) {
                    *byte = *new;
                }
            }
            5 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << self.below(8);
                }
            }
            _ => {
                if let Some(byte) = input.get_mut(at) {
                    *byte = self.below(256) as u8;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Mutator;

    #[test]
    fn the_same_seed_gives_the_same_inputs_and_another_one_others() {
        let corpus = [b"one".to_vec(), b"another".to_vec()];
        let inputs = |seed| {
            let mut mutator = Mutator::new(seed);
            (0..100).map(|_| mutator.input(&corpus)).collect::<Vec<_>>()
        };
        assert_eq!(inputs(1), inputs(1));
        assert_ne!(inputs(1), inputs(2));
    }
}
