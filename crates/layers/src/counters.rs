//! Counters of a layer, by name.

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counts since the start; bytes are those of data, without headers.
        #[derive(Clone, Debug, Default)]
        pub(super) struct LayerCounters {
            $($(#[$doc])* pub $name: u64),*
        }

        impl LayerCounters {
            /// Returns the counts since the counters were `earlier`, by name.
            pub fn since(&self, earlier: &Self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name - earlier.$name)),*]
            }
        }
    };
}

pub(crate) use counters;
