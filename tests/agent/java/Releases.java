package cleanerd.agent;

/** Prints, for each argument, what release of Apache Kafka it is taken for, and whether that is a known one. */
final class Releases {
    private Releases() {}

    public static void main(String[] arguments) {
        for (String told : arguments) {
            Release release = Release.of(told);
            System.out.println(release.base() + " " + release.known());
        }
        System.out.println(Release.of(null).base() + " " + Release.of(null).known());
    }
}
