package lockkeeper;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.Arrays;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.BaseConfig;
import org.redisson.config.BaseMasterSlaveServersConfig;
import org.redisson.config.ClusterServersConfig;
import org.redisson.config.Config;
import org.redisson.config.SingleServerConfig;

/** Redisson's configuration. What is not set is as Redisson has it. */
final class Settings {
    private Settings() {}

    /**
     * The first argument is the address. Several addresses, with commas, are those of a cluster, or of sentinels that know the
     * master by the name before an @.
     */
    static Config of(String[] arguments) {
        Config config = new Config();
        BaseConfig<?> server = server(config, arguments[0]);
        for (String argument : Arrays.asList(arguments).subList(1, arguments.length)) {
            String[] setting = argument.split("=", 2);
            switch (setting[0]) {
                case "small" -> small(config, server);
                case "watchdog" -> config.setLockWatchdogTimeout(Long.parseLong(setting[1]));
                case "prefix" -> prefix(setting[1], config, server);
                case "sharded" -> sharded(setting[1], (ClusterServersConfig) server);
                case "database" -> database(setting[1], (ClusterServersConfig) server);
                case "text" -> config.setCodec(StringCodec.INSTANCE); // instead of Kryo
                default -> throw new IllegalArgumentException(argument);
            }
        }
        return config;
    }

    private static BaseConfig<?> server(Config config, String address) {
        int at = address.indexOf('@');
        String[] addresses = address.substring(at + 1).split(",");
        if (at >= 0) {
            return config.useSentinelServers().setMasterName(address.substring(0, at)).addSentinelAddress(addresses);
        }
        return addresses.length == 1
                ? config.useSingleServer().setAddress(address)
                : config.useClusterServers().addNodeAddress(addresses);
    }

    /** For many of these programs side by side on one machine. */
    private static void small(Config config, BaseConfig<?> server) {
        config.setThreads(4).setNettyThreads(2);
        // Three seconds otherwise; and a lock that was not answered in time is an error.
        server.setTimeout(20_000);
        if (server instanceof SingleServerConfig single) {
            single.setConnectionMinimumIdleSize(1).setSubscriptionConnectionMinimumIdleSize(1);
        } else if (server instanceof BaseMasterSlaveServersConfig<?> group) {
            group.setMasterConnectionMinimumIdleSize(1).setSlaveConnectionMinimumIdleSize(1);
            group.setSubscriptionConnectionMinimumIdleSize(1);
        }
    }

    /** Version 4 moved the interface to another package, and later its setter to another class. */
    private static void prefix(String prefix, Object... configs) {
        InvocationHandler mapper = (self, method, names) -> switch (method.getName()) {
            case "map" -> prefix + names[0];
            case "unmap" -> names[0].toString().substring(prefix.length());
            default -> throw new UnsupportedOperationException(method.getName());
        };
        for (Object config : configs) {
            for (Method setter : config.getClass().getMethods()) {
                if (setter.getName().equals("setNameMapper")) {
                    Class<?> type = setter.getParameterTypes()[0];
                    invoke(setter, config, Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, mapper));
                    return;
                }
            }
        }
    }

    /** Versions before 3.22 do not have it. */
    private static void sharded(String mode, ClusterServersConfig cluster) {
        for (Method setter : cluster.getClass().getMethods()) {
            if (setter.getName().equals("setShardedSubscriptionMode")) {
                for (Object value : setter.getParameterTypes()[0].getEnumConstants()) {
                    if (value.toString().equals(mode)) {
                        invoke(setter, cluster, value);
                        return;
                    }
                }
            }
        }
        throw new IllegalArgumentException("sharded=" + mode);
    }

    /** Versions before 4.0 do not have it. */
    private static void database(String number, ClusterServersConfig cluster) {
        try {
            invoke(cluster.getClass().getMethod("setDatabase", int.class), cluster, Integer.valueOf(number));
        } catch (NoSuchMethodException exception) {
            throw new IllegalArgumentException("database=" + number, exception);
        }
    }

    private static void invoke(Method setter, Object config, Object value) {
        try {
            setter.invoke(config, value);
        } catch (ReflectiveOperationException exception) {
            throw new IllegalStateException(exception);
        }
    }
}
