package cleanerd.agent;

import java.io.IOException;

/** Prints a trial's texts for failures in directories with random names. */
public final class Words {
    private Words() {}

    public static void main(String[] failures) {
        for (String failure : failures) {
            System.out.println(Trial.textOf(new IOException(failure)));
        }
    }
}
