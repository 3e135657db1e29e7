package lockkeeper;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.stream.LongStream;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.RedisException;

/** Many threads that wait for a lock which one holds, and each wants it once. */
final class Waiters {
    private final RedissonClient client;
    private final List<Thread> threads = new ArrayList<>();
    private final Queue<Long> entered = new ConcurrentLinkedQueue<>();
    private RLock holder;

    Waiters(RedissonClient client) {
        this.client = client;
    }

    /** Takes the lock, and returns once so many wait for it. */
    LongStream wait(String type, String name, int count) throws InterruptedException {
        threads.clear();
        entered.clear();
        holder = Locks.get(client, type, name);
        holder.lock();
        for (int number = 0; number < count; number++) {
            Thread thread = new Thread(() -> enter(Locks.get(client, type, name)));
            thread.setDaemon(true);
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            while (!Sleepers.isAsleep(thread)) {
                Thread.sleep(1);
            }
        }
        return LongStream.empty();
    }

    /** Releases it. The result is how long it took each to have it; who has to wait longer than this is sent away. */
    LongStream serve(int patience) throws InterruptedException {
        long longest = MILLISECONDS.toNanos(patience);
        long released = System.nanoTime();
        holder.unlock();
        for (Thread thread : threads) {
            long left = released + longest - System.nanoTime();
            if (left > 0) {
                thread.join(Math.max(1, left / 1_000_000));
            }
        }
        long[] times = entered.stream().mapToLong(time -> time - released).filter(time -> time <= longest).toArray();
        threads.forEach(Thread::interrupt);
        for (Thread thread : threads) {
            thread.join();
        }
        return LongStream.of(times);
    }

    private void enter(RLock lock) {
        try {
            lock.lockInterruptibly();
            entered.add(System.nanoTime());
            lock.unlock();
        } catch (InterruptedException | RedisException sentAway) {
            // While it waits, or while it waits for an answer: what it then leaves behind, nobody else wants.
        }
    }
}
