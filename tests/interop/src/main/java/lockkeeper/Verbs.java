package lockkeeper;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.redisson.api.RBucket;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;

/** What an actor can be told to do. The first two arguments of each are the type and the name of a lock. */
final class Verbs {
    private interface Verb {
        Object run(RLock lock, List<String> arguments) throws Exception;
    }

    private final RedissonClient client;
    private final Map<String, Verb> verbs = Map.ofEntries(
            verb("lock", (lock, none) -> {
                lock.lock();
                return "";
            }),
            verb("lock_for", (lock, lease) -> {
                lock.lock(number(lease, 0), MILLISECONDS);
                return "";
            }),
            verb("lock_token", (lock, none) -> call(lock, "lockAndGetToken")),
            verb("token", (lock, none) -> call(lock, "getToken")),
            verb("try_lock", (lock, none) -> lock.tryLock()),
            verb("try_lock_within", (lock, wait) -> lock.tryLock(number(wait, 0), MILLISECONDS)),
            verb("unlock", (lock, none) -> {
                lock.unlock();
                return "";
            }),
            verb("force_unlock", (lock, none) -> lock.forceUnlock()),
            verb("is_locked", (lock, none) -> lock.isLocked()),
            verb("is_held", (lock, none) -> lock.isHeldByCurrentThread()),
            verb("hold_count", (lock, none) -> lock.getHoldCount()),
            verb("remaining", (lock, none) -> lock.remainTimeToLive()),
            verb("who", (lock, none) -> who()),
            verb("count", this::count),
            verb("look", this::look),
            verb("sleeps", (lock, actor) -> sleeps(actor.get(0))));

    Verbs(RedissonClient client) {
        this.client = client;
    }

    Object run(String verb, List<String> arguments) throws Exception {
        RLock lock = Locks.get(client, arguments.get(0), arguments.get(1));
        return verbs.get(verb).run(lock, arguments.subList(2, arguments.size()));
    }

    private static boolean sleeps(String actor) {
        return Thread.getAllStackTraces().keySet().stream()
                .anyMatch(thread -> thread.getName().equals(actor) && Sleepers.isAsleep(thread));
    }

    /** What not every lock has, nor every version of Redisson. */
    private static Object call(RLock lock, String method) throws ReflectiveOperationException {
        return lock.getClass().getMethod(method).invoke(lock);
    }

    /** How this thread is called in Redis. */
    private String who() {
        return client.getId() + ":" + Thread.currentThread().getId();
    }

    /** For that many milliseconds, counts up a key that only the lock protects. The result is how often it did. */
    private Object count(RLock lock, List<String> arguments) {
        RBucket<String> counter = client.getBucket(arguments.get(1), StringCodec.INSTANCE);
        long end = System.nanoTime() + MILLISECONDS.toNanos(number(arguments, 0));
        long counted = 0;
        while (System.nanoTime() < end) {
            lock.lock();
            try {
                String before = counter.get();
                counter.set(Long.toString(1 + (before == null ? 0 : Long.parseLong(before))));
                counted++;
            } finally {
                lock.unlock();
            }
        }
        return counted;
    }

    /** For that many milliseconds, looks twice in each section at a key that may not change in it. How often it did. */
    private Object look(RLock lock, List<String> arguments) throws InterruptedException {
        RBucket<String> counter = client.getBucket(arguments.get(1), StringCodec.INSTANCE);
        long end = System.nanoTime() + MILLISECONDS.toNanos(number(arguments, 0));
        long looked = 0;
        while (System.nanoTime() < end) {
            lock.lock();
            try {
                String before = counter.get();
                String after = counter.get();
                if (!Objects.equals(before, after)) {
                    throw new IllegalStateException(before + " became " + after);
                }
                looked++;
            } finally {
                lock.unlock();
            }
            Thread.sleep(5); // where somebody always reads, nobody ever writes
        }
        return looked;
    }

    private static Map.Entry<String, Verb> verb(String name, Verb verb) {
        return Map.entry(name, verb);
    }

    private static long number(List<String> arguments, int index) {
        return Long.parseLong(arguments.get(index));
    }
}
