package cleanerd.agent;

import java.io.IOException;
import java.nio.channels.SocketChannel;
import java.nio.file.Path;

/** Accepts clients, and has the file by which they find it. */
interface Listener extends AutoCloseable {
    /** The file: a socket or an announcement. */
    Path path();

    /** The address, as text for the broker's log. */
    String address();

    /** Whether the file still leads to this listener. */
    boolean isReachable();

    /** Waits for the next client that may be served. Clients that may not be served cannot delay it. */
    SocketChannel accept() throws IOException;

    /** Removes the file if it is still this listener's. */
    @Override
    void close() throws IOException;
}
