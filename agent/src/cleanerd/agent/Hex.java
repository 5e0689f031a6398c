package cleanerd.agent;

/** Bytes as lower-case hexadecimal digits. Java 11 has no HexFormat. */
final class Hex {
    private Hex() {}

    static String of(byte[] bytes) {
        StringBuilder text = new StringBuilder(2 * bytes.length);
        for (byte each : bytes) {
            text.append(Character.forDigit(each >> 4 & 15, 16)).append(Character.forDigit(each & 15, 16));
        }
        return text.toString();
    }

    /** The bytes of {@code text}, two digits per byte; null if it is not such a text. */
    static byte[] bytes(String text) {
        if (!text.matches("(?:[0-9a-f]{2})*")) {
            return null;
        }
        byte[] bytes = new byte[text.length() / 2];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) Integer.parseInt(text.substring(2 * i, 2 * i + 2), 16);
        }
        return bytes;
    }
}
