//! The setters of the pool's options, written once for every type that holds them: a driver's configuration, and the
//! builder of its pool.
//!
//! Values are stored as they come, and checked when connecting.

/// Gives a type the setters of the pool's options, which lie in its field `$place`. `$uncached` says what a statement
/// cache of 0 means to the driver.
#[doc(hidden)]
#[macro_export]
macro_rules! option_setters {
    ($type:ty, $($place:ident).+, $uncached:literal) => {
        impl $type {
            /// Sets what makes the byte streams to servers in place of TCP connections: a tunnel, a proxy in the same
            /// process, a simulator. `open` is called with host and port for every attempt to connect, within
            /// `connect_timeout`; its error is the source of the attempt's. The stream is anything that reads, writes
            /// and can be sent to other threads. Unix sockets are opened as ever, and what tunes TCP sockets does not
            /// apply. Default: none, plain TCP.
            ///
            /// For example `transport(|host, port| async move { TcpStream::connect((host, port)).await })` does what
            /// is done without it.
            #[must_use]
            pub fn transport<F, Fut, S>(mut self, open: F) -> Self
            where
                F: Fn(String, u16) -> Fut + Send + Sync + 'static,
                Fut: ::std::future::Future<Output = ::std::io::Result<S>> + Send + 'static,
                S: $crate::transport::Stream + 'static,
            {
                self.$($place).+.set_transport(Some($crate::transport::Transport::new(open)));
                self
            }

            /// Says of a [`transport`](Self::transport) that is set already that all its streams to one host and port
            /// lead to one server. Then a statement whose time is up is cancelled there, by another stream. Not behind
            /// what spreads connections over servers: another server knows other connections by the same number.
            /// Default: unknown, and nothing is cancelled by such streams.
            #[must_use]
            pub fn direct_transport(mut self) -> Self {
                let transport = self.$($place).+.transport().cloned();
                self.$($place).+.set_transport(transport.map($crate::transport::Transport::direct));
                self
            }

            /// Sets the seed of the random numbers that spread back-off and lifetimes in time. With the same seed, a
            /// runtime of one thread, paused time and a transport that repeats itself, a pool repeats itself; leave it
            /// alone otherwise. Nothing that must be secret comes from it. Default: from the operating system.
            #[must_use]
            pub fn seed(mut self, seed: u64) -> Self {
                self.$($place).+.set_seed(Some(seed));
                self
            }

            /// Sets the number of pipes, 1 to 1024. Default: 8.
            #[must_use]
            pub fn connections(mut self, connections: usize) -> Self {
                self.$($place).+.set_connections(connections);
                self
            }

            /// Sets the number of entries per pipe, 1 to 65,536; 1 switches pipelining off. Default: 256.
            #[must_use]
            pub fn max_in_flight(mut self, entries: usize) -> Self {
                self.$($place).+.set_max_in_flight(entries);
                self
            }

            /// Sets the largest answer in bytes; a larger one fails alone. Default: 256 MiB.
            #[must_use]
            pub fn max_answer_bytes(mut self, bytes: usize) -> Self {
                self.$($place).+.set_max_answer_bytes(bytes);
                self
            }

            /// Sets how many bytes of answers the pool holds at a time. Default: 1 GiB.
            #[must_use]
            pub fn answer_budget(mut self, bytes: usize) -> Self {
                self.$($place).+.set_answer_budget(bytes);
                self
            }

            /// Sets how many bytes per pipe may wait to be sent. Default: 4 MiB.
            #[must_use]
            pub fn queue_bytes(mut self, bytes: usize) -> Self {
                self.$($place).+.set_queue_bytes(bytes);
                self
            }

            /// Sets the time for name resolution, TCP, TLS, authentication and set-up together, 1 ms to 7 days.
            /// Default: 10 s.
            #[must_use]
            pub fn connect_timeout(mut self, timeout: ::std::time::Duration) -> Self {
                self.$($place).+.set_connect_timeout(timeout);
                self
            }

            /// Sets the time for a query, queueing included (streams and COPY: per step), 1 ms to 7 days.
            /// Default: 30 s.
            #[must_use]
            pub fn query_timeout(mut self, timeout: ::std::time::Duration) -> Self {
                self.$($place).+.set_query_timeout(timeout);
                self
            }

            /// Sets how long to wait for a lease, 1 ms to 7 days. Default: 5 s.
            #[must_use]
            pub fn acquire_timeout(mut self, timeout: ::std::time::Duration) -> Self {
                self.$($place).+.set_acquire_timeout(timeout);
                self
            }

            /// Sets how far the oldest answer of a pipe may be behind its query's deadline before the pipe is replaced,
            /// 1 ms to 7 days. Default: 10 s.
            #[must_use]
            pub fn stall_timeout(mut self, timeout: ::std::time::Duration) -> Self {
                self.$($place).+.set_stall_timeout(timeout);
                self
            }

            /// Sets after how long a lease is reported as held too long, up to 365 days; zero for never. Default: 30 s.
            #[must_use]
            pub fn lease_report_after(mut self, after: ::std::time::Duration) -> Self {
                self.$($place).+.set_lease_report_after(after);
                self
            }

            /// Sets how the pipe for a query is chosen. Default: by the least expected work; the other ways are there to
            /// be compared with.
            #[must_use]
            pub fn routing(mut self, routing: $crate::options::Routing) -> Self {
                self.$($place).+.set_routing(routing);
                self
            }

            /// Sets the number of prepared statements per pipe, 0 to 65,536. Default: 256.
            ///
            #[doc = $uncached]
            #[must_use]
            pub fn statement_cache(mut self, statements: usize) -> Self {
                self.$($place).+.set_statement_cache(statements);
                self
            }

            /// Sets after how long, ± 10 %, a pipe is replaced, 1 s to 365 days; zero for never. Default: 30 min.
            #[must_use]
            pub fn max_lifetime(mut self, lifetime: ::std::time::Duration) -> Self {
                self.$($place).+.set_max_lifetime(lifetime);
                self
            }

            /// Sets the statements that every new pipe runs, and again after a reset, in place of earlier ones; in
            /// text each `setup` adds one. Default: none.
            #[must_use]
            pub fn setup<S: Into<String>>(mut self, statements: impl IntoIterator<Item = S>) -> Self {
                self.$($place).+.set_setup(statements.into_iter().map(Into::into).collect());
                self
            }
        }
    };
}
