package lockkeeper;

import static java.util.concurrent.TimeUnit.MICROSECONDS;
import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.util.concurrent.locks.LockSupport;
import java.util.stream.LongStream;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/** Sections under locks, over and over, in many threads. */
final class Sections {
    private final RedissonClient client;

    Sections(RedissonClient client) {
        this.client = client;
    }

    /**
     * A thread for each name, until the time is up. Behind what the crowd says, the result is, for each section: the
     * number of the thread, when it asked, when it had the lock, when it began to release it, and when it had.
     */
    LongStream run(String type, String[] names, int sectionMicros, int pauseMicros, int ms) throws Exception {
        return Crowd.run(names.length, (number, began) -> {
            RLock lock = Locks.get(client, type, names[number]);
            LongStream.Builder times = LongStream.builder();
            long end = began + MILLISECONDS.toNanos(ms);
            while (System.nanoTime() < end) {
                times.add(number).add(System.nanoTime());
                lock.lock();
                times.add(System.nanoTime());
                rest(sectionMicros);
                times.add(System.nanoTime());
                lock.unlock();
                times.add(System.nanoTime());
                rest(pauseMicros);
            }
            return times.build();
        });
    }

    /** A thread that is parked may be woken for no reason. */
    private static void rest(int micros) {
        long end = System.nanoTime() + MICROSECONDS.toNanos(micros);
        for (long left = end - System.nanoTime(); micros > 0 && left > 0; left = end - System.nanoTime()) {
            LockSupport.parkNanos(left);
        }
    }
}
