package cleanerd.agent;

import java.nio.file.Path;
import java.util.Set;

/** The agent's arguments. */
final class Options {
    private Path socket;
    private String transport;
    private boolean allowUnknownVersion;

    private Options() {}

    static Options parse(String arguments) {
        Options options = new Options();
        for (String argument : arguments.split(",")) {
            int equals = argument.indexOf('=');
            options.take(equals < 0 ? argument : argument.substring(0, equals),
                    equals < 0 ? "" : argument.substring(equals + 1));
        }
        return options;
    }

    private void take(String key, String value) {
        switch (key) {
            case "":
            case "jar":
                return;
            case "socket":
                socket = Path.of(value).toAbsolutePath();
                return;
            case "transport":
                if (!Set.of(Transport.UNIX, Transport.LOOPBACK).contains(value)) {
                    throw new IllegalArgumentException("transport=" + value + ": there are unix and loopback");
                }
                transport = value;
                return;
            case "allow-unknown-version":
                allowUnknownVersion = value.equals("true");
                return;
            default:
                throw new IllegalArgumentException("unknown argument '" + key
                        + "'; there are socket=PATH, transport=unix or loopback, jar=PATH and allow-unknown-version=true");
        }
    }

    /** Where to listen; null: in the broker's first log directory (U-31). */
    Path socket() {
        return socket;
    }

    /** By which way; null: what this Java is able to. */
    String transport() {
        return transport;
    }

    /** Whether a release is served that is not in the table but has all its members. */
    boolean allowUnknownVersion() {
        return allowUnknownVersion;
    }
}
