//! Virtual users with ramp-up and loops, as JMeter's thread group: user i of n starts at `i · ramp_up / n`.

use std::{
    rc::Rc,
    time::{Duration, Instant},
};

use tokio::task::JoinSet;

use crate::{
    connection::Connection,
    run::Share,
    user::{Desk, Job, User},
};

pub(super) async fn drive<C: Connection>(
    desk: &Rc<Desk>,
    threads: usize,
    ramp_up: Duration,
    loops: u64,
    share: &Share,
) {
    let mut users = JoinSet::new();
    let mut line = Rc::<C::Line>::default();
    for (place, index) in (share.thread..threads).step_by(share.threads).enumerate() {
        if place.is_multiple_of(desk.load.streams) {
            line = Rc::default();
        }
        let mut user = User::<C>::new(Rc::clone(desk), Rc::clone(&line));
        let starts = share.start + ramp_up.mul_f64(index as f64 / threads as f64);
        let first = index as u64 * loops;
        users.spawn_local(async move {
            tokio::time::sleep_until(starts.into()).await;
            let mut now = Instant::now();
            for number in first..first + loops {
                let job = Job { number, phase: 0, origin: now, waited: Duration::ZERO };
                (now, _) = user.send(job, now).await;
            }
        });
    }
    while users.join_next().await.is_some() {}
}
