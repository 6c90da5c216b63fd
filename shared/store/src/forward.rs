//! Stores in front of stores: pointers to a store, and wrappers that change only some calls.

use std::sync::Arc;

use crate::Store;

/// Forwards methods of [`Store`] to a field that is a store too (`*`: to what a pointer points to). A wrapper then writes only
/// what it does differently:
///
/// ```
/// use std::sync::Arc;
/// use onetap_store::{Batch, Commit, Error, Store, forward};
///
/// /// A store that can be read and not written.
/// #[derive(Debug)]
/// struct ReadOnly {
///     store: Arc<dyn Store>,
/// }
///
/// #[onetap_store::async_trait]
/// impl Store for ReadOnly {
///     async fn commit(&self, _: &Batch) -> Result<Commit, Error> {
///         Err(Error::rejected("this store is read-only"))
///     }
///     async fn commit_each(&self, batches: &[Batch]) -> Vec<Result<Commit, Error>> {
///         batches.iter().map(|_| Err(Error::rejected("this store is read-only"))).collect()
///     }
///     forward!(store: get_all, read, watch, connect, capabilities, max_value);
/// }
/// ```
#[macro_export]
macro_rules! forward {
    ($field:tt: $($method:ident),+) => { $($crate::forward!(@$method $field);)+ };
    (@get_all $field:tt) => {
        $crate::forward!(@asynchronous get_all, $field, [keys: &'b [$crate::Key]], [keys], Result<Vec<Option<String>>, $crate::Error>);
    };
    (@commit $field:tt) => {
        $crate::forward!(@asynchronous commit, $field, [batch: &'b $crate::Batch], [batch], Result<$crate::Commit, $crate::Error>);
    };
    (@commit_each $field:tt) => {
        $crate::forward!(@asynchronous commit_each, $field, [batches: &'b [$crate::Batch]], [batches], Vec<Result<$crate::Commit, $crate::Error>>);
    };
    (@read $field:tt) => {
        $crate::forward!(@asynchronous read, $field, [log: &'b $crate::Log, after: Option<$crate::Position>, limit: usize], [log, after, limit], Result<Vec<$crate::Record>, $crate::Error>);
    };
    (@watch $field:tt) => {
        $crate::forward!(@asynchronous watch, $field, [channel: &'b $crate::Channel], [channel], Result<$crate::BoxStream<'static, Result<(), $crate::Error>>, $crate::Error>);
    };
    (@connect $field:tt) => {
        fn connect<'a, 'c>(&'a self) -> $crate::BoxFuture<'c, Result<(), $crate::Error>>
        where
            'a: 'c,
            Self: 'c,
        {
            $crate::Store::connect(&$crate::forward!(@place self $field))
        }
    };
    (@capabilities $field:tt) => {
        fn capabilities(&self) -> $crate::Capabilities {
            $crate::Store::capabilities(&$crate::forward!(@place self $field))
        }
    };
    (@max_value $field:tt) => {
        fn max_value(&self) -> usize {
            $crate::Store::max_value(&$crate::forward!(@place self $field))
        }
    };
    (@place $self:ident *) => { **$self };
    (@place $self:ident $field:tt) => { $self.$field };
    // The signatures that `async_trait` generates: it does not expand macros.
    (@asynchronous $method:ident, $field:tt, [$($argument:tt)*], [$($name:tt)*], $output:ty) => {
        fn $method<'a, 'b, 'c>(&'a self, $($argument)*) -> $crate::BoxFuture<'c, $output>
        where
            'a: 'c,
            'b: 'c,
            Self: 'c,
        {
            $crate::Store::$method(&$crate::forward!(@place self $field), $($name)*)
        }
    };
}

impl<S: Store + ?Sized> Store for Arc<S> {
    forward!(*: get_all, commit, commit_each, read, watch, connect, capabilities, max_value);
}

impl<S: Store + ?Sized> Store for &S {
    forward!(*: get_all, commit, commit_each, read, watch, connect, capabilities, max_value);
}
