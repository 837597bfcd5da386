//! Time limits and moments.

use std::{
    future::{Future, poll_fn},
    io,
    pin::{Pin, pin},
    task::Poll,
    time::{Duration, Instant},
};

use rustix::{
    fd::OwnedFd,
    time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    },
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    time::Sleep,
};

/// A time limit that is set anew for each of many requests. It leaves its timer where it is as long as the limit only
/// moves later, and looks again when the timer fires: so a limit costs nothing for a request that keeps it.
pub(crate) struct Limit {
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Limit {
    pub(crate) fn new() -> Self {
        Self { sleep: None }
    }

    /// What the future returns, or `None` if it has not returned by the deadline (to a millisecond).
    pub(crate) async fn within<T>(
        &mut self,
        deadline: Instant,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        let deadline = tokio::time::Instant::from_std(deadline);
        let mut future = pin!(future);
        poll_fn(|context| {
            if let Poll::Ready(value) = future.as_mut().poll(context) {
                return Poll::Ready(Some(value));
            }
            let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
            if sleep.deadline() > deadline {
                sleep.as_mut().reset(deadline);
            }
            while sleep.as_mut().poll(context).is_ready() {
                if sleep.deadline() >= deadline {
                    return Poll::Ready(None);
                }
                sleep.as_mut().reset(deadline);
            }
            Poll::Pending
        })
        .await
    }
}

/// Wakes at a moment, to some hundredths of a millisecond: tokio's own timer knows milliseconds only, which is longer than
/// many an answer takes.
pub(crate) struct Alarm {
    timer: AsyncFd<OwnedFd>,
}

impl Alarm {
    /// To be made within a tokio runtime.
    pub(crate) fn new() -> io::Result<Self> {
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        // SAFETY: an OwnedFd is the same open descriptor for as long as it lives, and AsyncFd owns it.
        let timer = unsafe { AsyncFd::register_with_interest(timer, Interest::READABLE) }?;
        Ok(Self { timer })
    }

    /// Returns at this moment; at once if it has passed. May return early: look at the clock again.
    pub(crate) async fn at(&mut self, moment: Instant) -> io::Result<()> {
        let left = moment.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        // An event of an earlier setting, that nobody waited for, is forgotten; setting the timer brings a new one.
        if let Some(Ok(mut old)) = futures_now(self.timer.readable()) {
            old.clear_ready();
        }
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: timespec(left) };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
        self.timer.readable().await?.clear_ready();
        Ok(())
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

/// The result of a future that is ready.
fn futures_now<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match pin!(future).poll(&mut context) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime")
            .block_on(future)
    }

    #[test]
    fn a_limit_that_moves_later_holds_at_its_last_place() {
        block_on(async {
            let mut limit = Limit::new();
            let start = Instant::now();
            let after = |ms| start + Duration::from_millis(ms);
            assert_eq!(limit.within(after(20), async { 1 }).await, Some(1));
            assert_eq!(
                limit.within(after(60), tokio::time::sleep(Duration::from_millis(40))).await,
                Some(())
            );
            assert_eq!(limit.within(after(90), std::future::pending::<()>()).await, None);
            assert!(start.elapsed() >= Duration::from_millis(90));
            // And one that is earlier than the last.
            assert_eq!(limit.within(after(10_000), async { 1 }).await, Some(1));
            assert_eq!(limit.within(after(120), std::future::pending::<()>()).await, None);
            assert!(start.elapsed() < Duration::from_secs(5));
        });
    }

    #[test]
    fn an_alarm_is_never_early_by_more_than_it_says_and_may_be_abandoned() {
        block_on(async {
            let mut alarm = Alarm::new().expect("a timer");
            alarm.at(Instant::now()).await.expect("the past");
            for _ in 0..20 {
                // Abandoned while it waits.
                let _ = Limit::new()
                    .within(
                        Instant::now() + Duration::from_millis(1),
                        alarm.at(Instant::now() + Duration::from_millis(2)),
                    )
                    .await;
                let moment = Instant::now() + Duration::from_micros(1500);
                while Instant::now() < moment {
                    alarm.at(moment).await.expect("a timer");
                }
            }
        });
    }
}
