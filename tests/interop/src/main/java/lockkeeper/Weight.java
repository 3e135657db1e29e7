package lockkeeper;

import com.sun.management.OperatingSystemMXBean;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.stream.LongStream;

/** What this process needs. */
final class Weight {
    private Weight() {}

    /** The time that it has computed, all threads together. */
    static long computed() {
        return ManagementFactory.getPlatformMXBean(OperatingSystemMXBean.class).getProcessCpuTime();
    }

    /** Bytes on the heap that are in use, and bytes of this process that are in memory. */
    static LongStream inMemory() throws IOException {
        System.gc();
        return LongStream.of(ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed(), resident());
    }

    private static long resident() throws IOException {
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (line.startsWith("VmRSS:")) {
                return 1_024 * Long.parseLong(line.replaceAll("[^0-9]", ""));
            }
        }
        throw new IllegalStateException("not a Linux system");
    }
}
