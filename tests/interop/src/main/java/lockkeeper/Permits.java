package lockkeeper;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.util.List;
import java.util.Map;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RedissonClient;

/** What a Java thread does with a semaphore. A lease of 0 stands for none. */
final class Permits {
    private interface Verb {
        Object run(RPermitExpirableSemaphore semaphore, List<String> rest) throws Exception;
    }

    private static final Map<String, Verb> VERBS = Map.of(
            "permits_set", (semaphore, rest) -> semaphore.trySetPermits(Integer.parseInt(rest.get(0))),
            "permits_available", (semaphore, rest) -> semaphore.availablePermits(),
            "permits_acquire", (semaphore, rest) -> {
                long lease = Long.parseLong(rest.get(0));
                return lease == 0 ? semaphore.acquire() : semaphore.acquire(lease, MILLISECONDS);
            },
            "permits_try", (semaphore, rest) -> {
                long wait = Long.parseLong(rest.get(0));
                long lease = Long.parseLong(rest.get(1));
                return semaphore.tryAcquire(wait, lease == 0 ? -1 : lease, MILLISECONDS);
            },
            "permits_release", (semaphore, rest) -> semaphore.tryRelease(rest.get(0)));

    private final RedissonClient client;

    Permits(RedissonClient client) {
        this.client = client;
    }

    boolean has(String verb) {
        return VERBS.containsKey(verb);
    }

    Object run(String verb, List<String> arguments) throws Exception {
        RPermitExpirableSemaphore semaphore = client.getPermitExpirableSemaphore(arguments.get(1));
        return VERBS.get(verb).run(semaphore, arguments.subList(2, arguments.size()));
    }
}
