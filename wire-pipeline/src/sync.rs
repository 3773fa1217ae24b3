//! The locks, atomics and wakers of pipes and pools.
//!
//! In the crate they are the standard library's and `futures-util`'s. In its unit tests they are the same with a point
//! before each use at which another task may go first, so that the model check in [`crate::model`] tries the orders of
//! the real code; outside of a model these points do nothing.

#[cfg(not(test))]
pub(crate) use futures_util::task::AtomicWaker;
#[cfg(not(test))]
pub(crate) use std::sync::Mutex;
#[cfg(not(test))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

pub(crate) use std::sync::atomic::Ordering;
pub(crate) use std::sync::{MutexGuard, PoisonError};

#[cfg(test)]
pub(crate) use points::{AtomicBool, AtomicU64, AtomicUsize, AtomicWaker, Mutex};

#[cfg(test)]
pub(crate) mod points {
    use std::cell::Cell;
    use std::sync::atomic::Ordering;
    use std::sync::{LockResult, MutexGuard, TryLockError};
    use std::task::Waker;

    thread_local! {
        static IN_MODEL: Cell<bool> = const { Cell::new(false) };
    }

    /// Runs a model on this thread.
    pub(crate) fn in_model(body: impl FnOnce()) {
        IN_MODEL.set(true);
        body();
        IN_MODEL.set(false);
    }

    /// Here another task may go first. Not by `yield_now`, which wakes the task itself and would hide a lost wake-up.
    pub(crate) fn point() {
        if IN_MODEL.get() {
            shuttle::thread::sleep(std::time::Duration::ZERO);
        }
    }

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(std::sync::Mutex::new(value))
        }

        /// Whoever holds it in a model is at a point, on the same thread: waiting means letting him go on.
        pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
            while IN_MODEL.get() {
                point();
                match self.0.try_lock() {
                    Ok(guard) => return Ok(guard),
                    Err(TryLockError::Poisoned(poisoned)) => return Err(poisoned),
                    // Without it a scheduler that prefers this task would not let the other one go on.
                    Err(TryLockError::WouldBlock) => shuttle::thread::yield_now(),
                }
            }
            self.0.lock()
        }
    }

    #[derive(Debug, Default)]
    pub(crate) struct AtomicWaker(futures_util::task::AtomicWaker);

    impl AtomicWaker {
        pub(crate) fn new() -> Self {
            Self::default()
        }

        pub(crate) fn register(&self, waker: &Waker) {
            point();
            self.0.register(waker);
            point();
        }

        pub(crate) fn wake(&self) {
            point();
            self.0.wake();
        }
    }

    macro_rules! atomics {
        ($($name:ident: $type:ty, { $($add:ident)* };)+) => {$(
            #[derive(Debug, Default)]
            pub(crate) struct $name(std::sync::atomic::$name);

            impl $name {
                pub(crate) fn new(value: $type) -> Self {
                    Self(std::sync::atomic::$name::new(value))
                }

                pub(crate) fn load(&self, order: Ordering) -> $type {
                    point();
                    self.0.load(order)
                }

                pub(crate) fn store(&self, value: $type, order: Ordering) {
                    point();
                    self.0.store(value, order);
                }

                $(
                    pub(crate) fn $add(&self, value: $type, order: Ordering) -> $type {
                        point();
                        self.0.$add(value, order)
                    }
                )*
            }
        )+};
    }

    atomics! {
        AtomicBool: bool, {};
        AtomicU64: u64, { fetch_add fetch_sub };
        AtomicUsize: usize, { fetch_add fetch_sub };
    }
}
