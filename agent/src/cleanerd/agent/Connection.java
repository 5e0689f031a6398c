package cleanerd.agent;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.CodingErrorAction;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * One client: a line in, a line out, in this order. Never interrupt its thread: it may be in the middle of the broker's
 * file operations, and an interrupt closes their channels. It ends when its socket is closed.
 */
final class Connection implements Runnable {
    static final int MOST_LINE_BYTES = 4 * 1024 * 1024;
    static final int SMALL_LINE_BYTES = 64 * 1024;

    /** A member {@code id}, and before it none that holds others. */
    private static final Pattern ID = Pattern.compile("\\s*\\{(?:\\s*\"[a-z_]+\"\\s*:\\s*(?:\\d+|\"[^\"\\\\]*\")\\s*,)*"
            + "\\s*\"id\"\\s*:\\s*(?:(\\d{1,18})|\"([^\"\\\\]{0,200})\")\\s*[,}]");
    private static final int HEAD_BYTES = 1024;

    private static final long LINE_SECONDS = 30;
    private static final long IDLE_SECONDS = 300;

    private final SocketChannel channel;
    private final Requests requests;
    private final Semaphore largeLines;
    private final Runnable ended;
    private final ByteBuffer buffer = ByteBuffer.allocate(16 * 1024);
    private volatile long deadline;
    private volatile boolean working;

    /** {@code largeLines}: permits for lines that take memory, shared by all connections. */
    Connection(SocketChannel channel, Requests requests, Semaphore largeLines, Runnable ended) {
        this.channel = channel;
        this.requests = requests;
        this.largeLines = largeLines;
        this.ended = ended;
        buffer.limit(0);
        within(LINE_SECONDS);
    }

    @Override
    public void run() {
        try (Session session = new Session()) {
            while (serve(session)) { }
        } catch (IOException e) {
            close(); // the client is gone, or its time is up
        } finally {
            close();
            ended.run();
        }
    }

    /** Closes it when it keeps its worker waiting for too long. */
    void closeIfLate(long nowNanos) {
        if (!working && nowNanos - deadline > 0) {
            close();
        }
    }

    boolean working() {
        return working;
    }

    void close() {
        try {
            channel.close();
        } catch (IOException e) {
            return; // it was closed as far as it can be
        }
    }

    /** Deals with one line; false when the connection is to end. */
    private boolean serve(Session session) throws IOException {
        boolean large = false;
        boolean refused = false;
        long bytes = 0;
        ByteArrayOutputStream line = new ByteArrayOutputStream(256);
        try {
            while (true) {
                int count = upToEnd();
                boolean ends = count < buffer.remaining();
                if (!refused) {
                    line.write(buffer.array(), buffer.arrayOffset() + buffer.position(), count);
                }
                buffer.position(buffer.position() + count);
                if (ends) {
                    buffer.get();
                    return refused || answer(line, session);
                }
                bytes += count;
                if (bytes > MOST_LINE_BYTES) {
                    return refuse("bad_request", "the line is longer than " + MOST_LINE_BYTES + " bytes");
                }
                if (bytes > SMALL_LINE_BYTES && !large && !refused) {
                    large = largeLines.tryAcquire();
                    if (!large) {
                        refused = true; // answered at once; the rest of the line is skipped
                        send(Requests.refused(idOf(line), "busy", "other long requests are being read", null));
                        line.reset();
                    }
                }
                buffer.clear();
                int read = channel.read(buffer);
                buffer.flip();
                if (read < 0) {
                    return false;
                }
                if (bytes == 0) {
                    within(LINE_SECONDS);
                }
            }
        } finally {
            if (large) {
                largeLines.release();
            }
        }
    }

    /** How many bytes are in the buffer before the end of the line, or in all. */
    private int upToEnd() {
        for (int at = buffer.position(); at < buffer.limit(); at++) {
            if (buffer.get(at) == '\n') {
                return at - buffer.position();
            }
        }
        return buffer.remaining();
    }

    /** The id of a request of which only the beginning is here; null when it stands further behind. */
    private static Object idOf(ByteArrayOutputStream line) {
        byte[] bytes = line.toByteArray();
        Matcher matcher = ID.matcher(new String(bytes, 0, Math.min(bytes.length, HEAD_BYTES), StandardCharsets.US_ASCII));
        if (!matcher.lookingAt()) {
            return null;
        }
        return matcher.group(1) == null ? matcher.group(2) : Long.valueOf(matcher.group(1));
    }

    private boolean answer(ByteArrayOutputStream bytes, Session session) throws IOException {
        String line;
        try {
            line = StandardCharsets.UTF_8.newDecoder()
                    .onMalformedInput(CodingErrorAction.REPORT)
                    .onUnmappableCharacter(CodingErrorAction.REPORT)
                    .decode(ByteBuffer.wrap(bytes.toByteArray()))
                    .toString();
        } catch (CharacterCodingException e) {
            return refuse("bad_request", "the line is no UTF-8");
        }
        Map<String, Object> answer;
        working = true;
        try {
            answer = requests.answer(line, session);
        } finally {
            within(LINE_SECONDS);
            working = false;
        }
        send(answer);
        within(IDLE_SECONDS);
        return !"bad_request".equals(answer.get("code")) || answer.get("id") != null;
    }

    private boolean refuse(String code, String text) throws IOException {
        send(Requests.refused(null, code, text, null));
        return false;
    }

    private void send(Map<String, Object> answer) throws IOException {
        ByteBuffer out = ByteBuffer.wrap((Json.write(answer) + "\n").getBytes(StandardCharsets.US_ASCII));
        while (out.hasRemaining()) {
            channel.write(out);
        }
    }

    private void within(long seconds) {
        deadline = System.nanoTime() + seconds * 1_000_000_000L;
    }
}
