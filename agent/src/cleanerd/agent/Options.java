package cleanerd.agent;

import java.nio.file.Path;

/**
 * The agent's arguments.
 *
 * @param socket where to listen; null: in the broker's first log directory (U-31)
 * @param allowUnknownVersion whether a release is served that is not in the table but has all its members
 */
record Options(Path socket, boolean allowUnknownVersion) {
    static Options parse(String arguments) {
        Path socket = null;
        boolean allowUnknownVersion = false;
        for (String argument : arguments.split(",")) {
            int equals = argument.indexOf('=');
            String key = equals < 0 ? argument : argument.substring(0, equals);
            String value = equals < 0 ? "" : argument.substring(equals + 1);
            switch (key) {
                case "", "jar" -> { }
                case "socket" -> socket = Path.of(value).toAbsolutePath();
                case "allow-unknown-version" -> allowUnknownVersion = value.equals("true");
                default -> throw new IllegalArgumentException("unknown argument '" + key
                        + "'; there are socket=PATH, jar=PATH and allow-unknown-version=true");
            }
        }
        return new Options(socket, allowUnknownVersion);
    }
}
