package cleanerd.agent;

import java.io.DataInputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;

/**
 * The file that shows clients the agent's port of the loopback. A client that can read it is served, so it is always
 * private to the broker's user. It is created under another name with mode 0600, written, and renamed.
 */
final class Announcement {
    private static final int MOST_BYTES = 1024;
    private static final int PROBE_MS = 2_000;
    private static final int FORMAT = 1;
    private static final Path NETWORK = Path.of("/proc/self/ns/net");
    private static final Set<PosixFilePermission> PRIVATE = PosixFilePermissions.fromString("rw-------");

    private final int port;
    private final byte[] secret;

    private Announcement(int port, byte[] secret) {
        this.port = port;
        this.secret = secret;
    }

    static void write(Path path, int port, byte[] secret) throws IOException {
        Map<String, Object> facts = new LinkedHashMap<>();
        facts.put("cleanerd_agent", FORMAT);
        facts.put("port", port);
        facts.put("secret", Hex.of(secret));
        facts.put("network", network());
        Path fresh = path.resolveSibling(path.getFileName() + Place.NEW);
        Files.deleteIfExists(fresh);
        try {
            // CREATE_NEW is O_EXCL: a link or file that another user creates at this moment is not used.
            try (FileChannel file = FileChannel.open(fresh, Set.of(StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE),
                    PosixFilePermissions.asFileAttribute(PRIVATE))) {
                ByteBuffer text = ByteBuffer.wrap((Json.write(facts) + "\n").getBytes(StandardCharsets.US_ASCII));
                while (text.hasRemaining()) {
                    file.write(text);
                }
            }
            Files.move(fresh, path, StandardCopyOption.ATOMIC_MOVE);
        } catch (Throwable e) {
            Files.deleteIfExists(fresh);
            throw e;
        }
    }

    /** Whether an agent of this user listens at the port that {@code path} shows. Any other file there may be replaced. */
    static boolean answers(Path path) {
        try {
            Announcement found = read(path);
            return found != null && found.isProven();
        } catch (IOException | Refusal e) {
            return false;
        }
    }

    static InetAddress loopback() throws IOException {
        return InetAddress.getByAddress(new byte[] {127, 0, 0, 1});
    }

    /** The network namespace of the port, which containers have of their own; null if the system does not show it. */
    private static String network() {
        try {
            return Files.readSymbolicLink(NETWORK).toString();
        } catch (IOException e) {
            return null;
        }
    }

    private static Announcement read(Path path) throws IOException, Refusal {
        FileFacts facts = FileFacts.of(path);
        if (!facts.regular() || facts.size() > MOST_BYTES || facts.uid() != Place.self()) {
            return null;
        }
        ByteBuffer text = ByteBuffer.allocate(MOST_BYTES);
        try (FileChannel file = FileChannel.open(path, StandardOpenOption.READ, LinkOption.NOFOLLOW_LINKS)) {
            while (text.hasRemaining() && file.read(text) >= 0) { }
        }
        Fields fields = new Fields(Json.read(new String(text.array(), 0, text.position(), StandardCharsets.UTF_8)),
                "bad_request", "announcement");
        byte[] secret = Hex.bytes(fields.text("secret"));
        return secret == null ? null : new Announcement((int) fields.number("port", 65_535), secret);
    }

    private boolean isProven() throws IOException {
        byte[] mine = Proof.randomBytes(Proof.NUMBER_BYTES);
        byte[] theirs = new byte[Proof.NUMBER_BYTES];
        byte[] proof = new byte[Proof.BYTES];
        try (Socket socket = new Socket()) {
            socket.connect(new InetSocketAddress(loopback(), port), PROBE_MS);
            socket.setSoTimeout(PROBE_MS);
            OutputStream out = socket.getOutputStream();
            byte[] hello = Arrays.copyOf(Proof.HELLO, Proof.HELLO.length + mine.length);
            System.arraycopy(mine, 0, hello, Proof.HELLO.length, mine.length);
            out.write(hello);
            DataInputStream in = new DataInputStream(socket.getInputStream());
            in.readFully(theirs);
            in.readFully(proof);
        }
        return Proof.same(proof, Proof.of(secret, Proof.AGENT, mine, theirs));
    }
}
