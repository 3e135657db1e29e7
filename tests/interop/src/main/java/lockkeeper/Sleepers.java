package lockkeeper;

import java.util.Arrays;

/** Threads that wait for a lock. */
final class Sleepers {
    private Sleepers() {}

    /** Whether it has attempted in vain, and is parked until it is woken: Redisson uses a semaphore for it. */
    static boolean isAsleep(Thread thread) {
        if (!thread.isAlive()) {
            throw new IllegalStateException(thread + " waits no more");
        }
        return thread.getState() != Thread.State.RUNNABLE
                && Arrays.stream(thread.getStackTrace())
                        .anyMatch(frame -> frame.getClassName().equals("java.util.concurrent.Semaphore"));
    }
}
