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
        // One look: what a second one saw could be later, when a waiter that has not subscribed yet makes its semaphore.
        StackTraceElement[] stack = thread.getStackTrace();
        return stack.length > 0
                && stack[0].getMethodName().equals("park")
                && Arrays.stream(stack)
                        .anyMatch(frame -> frame.getClassName().equals("java.util.concurrent.Semaphore"));
    }
}
