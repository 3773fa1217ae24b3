//! The shapes of several values: tuples, arrays, slices and lists, written once.
//!
//! Macros, because what a driver implements for these shapes is a trait of its own, about values of its own. Hidden from
//! the documentation: they are the drivers' affair.

/// Calls a macro with the tuples of 1 to 16 values, behind what is fixed.
#[doc(hidden)]
#[macro_export]
macro_rules! each_tuple {
    ([$($callback:tt)+] $($fixed:tt)*) => {
        $($callback)+! {
            $($fixed)*
            (A 0)
            (A 0, B 1)
            (A 0, B 1, C 2)
            (A 0, B 1, C 2, D 3)
            (A 0, B 1, C 2, D 3, E 4)
            (A 0, B 1, C 2, D 3, E 4, F 5)
            (A 0, B 1, C 2, D 3, E 4, F 5, G 6)
            (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7)
            (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8)
            (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9)
            (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10)
            (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11)
            (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11, M 12)
            (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11, M 12, N 13)
            (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11, M 12, N 13, O 14)
            (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11, M 12, N 13, O 14, P 15)
        }
    };
}

/// Implements a driver's trait for parameters for all their shapes: nothing, tuples of up to 16 values, and lists of
/// references or boxes. `$params` counts its values (`count`) and hands them over as `&dyn $value` (`each`) until one
/// fails with `$error`.
#[doc(hidden)]
#[macro_export]
macro_rules! parameter_shapes {
    ($params:ident of $value:ident, $error:ty) => {
        impl $params for () {
            fn count(&self) -> usize {
                0
            }

            fn each<'a>(
                &'a self,
                _: &mut dyn FnMut(&'a dyn $value) -> Result<(), $error>,
            ) -> Result<(), $error> {
                Ok(())
            }
        }

        $crate::each_tuple! { [$crate::parameter_tuples] $params $value [$error] }

        $crate::parameter_lists! {
            $params $value [$error]
            ['v, const N: usize] [&'v (dyn $value + Sync); N], value => *value;
            ['v, const N: usize] &[&'v (dyn $value + Sync); N], value => *value;
            ['v] &[&'v (dyn $value + Sync)], value => *value;
            ['v] Vec<&'v (dyn $value + Sync)>, value => *value;
            ['v] &Vec<&'v (dyn $value + Sync)>, value => *value;
            ['v] Vec<Box<dyn $value + Send + Sync + 'v>>, value => value.as_ref();
            ['v] &Vec<Box<dyn $value + Send + Sync + 'v>>, value => value.as_ref();
            ['v] &[Box<dyn $value + Send + Sync + 'v>], value => value.as_ref();
            ['v] Vec<Box<dyn $value + Send + 'v>>, value => value.as_ref();
        }
    };
}

/// The tuples of [`parameter_shapes`].
#[doc(hidden)]
#[macro_export]
macro_rules! parameter_tuples {
    ($params:ident $value:ident [$error:ty] $( ($($name:ident $index:tt),+) )+) => {$(
        impl<$($name: $value + Send),+> $params for ($($name,)+) {
            fn count(&self) -> usize {
                [$($index),+].len()
            }

            fn each<'a>(
                &'a self,
                take: &mut dyn FnMut(&'a dyn $value) -> Result<(), $error>,
            ) -> Result<(), $error> {
                $(take(&self.$index)?;)+
                Ok(())
            }
        }
    )+};
}

/// The lists of [`parameter_shapes`].
#[doc(hidden)]
#[macro_export]
macro_rules! parameter_lists {
    ($params:ident $value:ident [$error:ty] $( [$($generics:tt)*] $list:ty, $item:ident => $inner:expr; )+) => {$(
        impl<$($generics)*> $params for $list {
            fn count(&self) -> usize {
                self.len()
            }

            fn each<'a>(
                &'a self,
                take: &mut dyn FnMut(&'a dyn $value) -> Result<(), $error>,
            ) -> Result<(), $error> {
                self.iter().try_for_each(|$item| take($inner))
            }
        }
    )+};
}
