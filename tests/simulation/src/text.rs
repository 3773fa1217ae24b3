//! Statements as this world knows them: whose they are, what they are given, what they do, and how their answers are
//! told from each other.

/// Whose statement it is: what its number says to the server.
///
/// The lowest two bits of an owner's number are its kind; 0 is everybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// Nobody: a statement of its own on a shared connection.
    Shared,
    /// A transaction's.
    Transaction,
    /// Part of a batch.
    Batch,
    /// A session's.
    Session,
}

impl Owner {
    /// The kind of an owner's number.
    pub fn of(number: i64) -> Self {
        match number & 3 {
            1 => Self::Transaction,
            2 => Self::Batch,
            3 => Self::Session,
            _ => Self::Shared,
        }
    }

    /// The number of the owner `count` of this kind.
    pub fn number(self, count: i64) -> i64 {
        count * 4
            + match self {
                Self::Shared => return 0,
                Self::Transaction => 1,
                Self::Batch => 2,
                Self::Session => 3,
            }
    }
}

/// What a statement is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args {
    /// Which statement it is: no two are alike.
    pub id: i64,
    /// Whose it is; see [`Owner`].
    pub owner: i64,
    /// How long the server works on it, in milliseconds.
    pub work: i64,
    /// Bytes of its answer; below zero the server refuses it.
    pub size: i64,
}

/// Statements from this variant on take a fifth argument, which is long and tells nothing.
pub const BULKY: i64 = 8;

/// A statement, as far as a server must know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Text {
    /// Gives its arguments back.
    Echo {
        /// Which text of the kind it is.
        variant: i64,
    },
    /// Writes its id into the ledger.
    Write {
        /// Which text of the kind it is.
        variant: i64,
    },
    /// Opens a transaction.
    Begin,
    /// Commits it.
    Commit,
    /// Undoes it.
    Rollback,
    /// Sets the savepoint of this number.
    Savepoint(i64),
    /// Undoes what was done since.
    Back(i64),
    /// Forgets it.
    Release(i64),
    /// Fails where the server as a whole takes no writes.
    AskReadOnly,
    /// Stops what another connection is at (MySQL).
    Kill(i64),
    /// Changes a setting of the session.
    Mark(i64),
    /// Takes all settings back.
    Reset,
    /// Switches the commit behind every statement.
    Autocommit(bool),
    /// Asks for the largest packet.
    MaxPacket,
    /// Nothing that matters here.
    Other,
}

impl Text {
    /// Reads a statement.
    pub fn parse(text: &str) -> Self {
        let text = text.trim();
        let variant = || number_behind(text, "/* ");
        if text.starts_with("SELECT echo(") {
            Self::Echo { variant: variant() }
        } else if text.starts_with("INSERT INTO ledger") {
            Self::Write { variant: variant() }
        } else if text.starts_with("SET marker") {
            Self::Mark(number_behind(text, "= "))
        } else if text.starts_with("SAVEPOINT ") {
            Self::Savepoint(number_behind(text, "savepoint_"))
        } else if text.starts_with("ROLLBACK TO SAVEPOINT ") {
            Self::Back(number_behind(text, "savepoint_"))
        } else if text.starts_with("RELEASE SAVEPOINT ") {
            Self::Release(number_behind(text, "savepoint_"))
        } else if text.starts_with("SELECT 1 / (NOT (")
            || text.starts_with("SELECT EXP(1000 * @@global.read_only)")
        {
            Self::AskReadOnly
        } else if text.starts_with("KILL QUERY ") {
            Self::Kill(number_behind(text, "QUERY "))
        } else if text.starts_with("SET autocommit") {
            Self::Autocommit(number_behind(text, "= ") == 1)
        } else if text.starts_with("SELECT @@max_allowed_packet") {
            Self::MaxPacket
        } else {
            match text {
                "BEGIN" => Self::Begin,
                "COMMIT" => Self::Commit,
                "ROLLBACK" => Self::Rollback,
                "RESET ALL" | "DISCARD ALL" => Self::Reset,
                _ => Self::Other,
            }
        }
    }

    /// How many arguments it takes.
    pub fn takes(self) -> u16 {
        match self {
            Self::Echo { variant } | Self::Write { variant } => 4 + u16::from(variant >= BULKY),
            _ => 0,
        }
    }

    /// The arguments that stand in the text itself.
    pub fn args(text: &str) -> Option<Args> {
        let (_, rest) = text.split_once('(')?;
        let (inside, _) = rest.split_once(')')?;
        let mut numbers = inside.split(',').map(|number| number.trim().parse().ok());
        let mut next = || numbers.next().flatten();
        Some(Args { id: next()?, owner: next()?, work: next()?, size: next()? })
    }
}

fn number_behind(text: &str, mark: &str) -> i64 {
    let digits = text.split(mark).nth(1).unwrap_or_default();
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().unwrap_or(0)
}

/// What an answer must hold so that nobody takes it for another's.
pub fn check(args: Args, variant: i64) -> i64 {
    let mixed = (args.id as u64 ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xff51_afd7_ed55_8ccd);
    ((mixed >> 3) ^ (variant as u64) << 20 ^ args.owner as u64) as i64
}

/// The padding of an answer.
pub fn padding(args: Args) -> String {
    let letter = char::from(b'a' + (args.id % 26) as u8);
    std::iter::repeat_n(letter, args.size.max(0) as usize).collect()
}
